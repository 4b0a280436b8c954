# Shared by the scripts: sourced, not run.

say() { printf '\n== %s\n' "$*"; }

# Runs a command under a heading and stops at its failure.
step() {
  say "$1"
  shift
  "$@"
}

# A C compiler (for SQLite) and the toolchain's own parts.
ensure_tools() {
  command -v cargo >/dev/null || { echo "install a Rust toolchain first: cargo is missing" >&2; exit 1; }
  if ! command -v cc >/dev/null; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
      say "installing a C compiler"
      apt-get update -qq && apt-get install -y -qq gcc libc6-dev
    else
      echo "install a C compiler first (Debian: apt-get install gcc libc6-dev)" >&2
      exit 1
    fi
  fi
  for part in rustfmt clippy; do
    cargo "${part/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$part"
  done
}

# The servers that tests start, each as PROGRAM:PACKAGE of Debian.
SERVERS=(
  redis-server:redis-server
  redis-sentinel:redis-sentinel
  redis-cli:redis-tools
  mariadbd:mariadb-server
  mariadb-install-db:mariadb-server
  mariadb:mariadb-client
  etcd:etcd-server
  etcdctl:etcd-client
  setpriv:util-linux
  ip:iproute2
  java:default-jre-headless
  /usr/share/zookeeper/bin/zkServer.sh:zookeeper
)

# The programs of the servers. No service is started: tests run servers of their own.
ensure_servers() {
  ensure_packages "${SERVERS[@]}"
}

# Installs what is missing of programs that are given as PROGRAM:PACKAGE.
ensure_packages() {
  local entry packages=()
  for entry in "$@"; do
    command -v "${entry%%:*}" >/dev/null || packages+=("${entry#*:}")
  done
  [ "${#packages[@]}" -eq 0 ] || install_packages "${packages[@]}"
}

# Installs packages, or says which ones are missing.
install_packages() {
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "programs are missing (Debian: apt-get install $*)" >&2
    exit 1
  fi
  say "installing $*"
  install_quietly "$@"
}

# Installs packages without letting them start services.
install_quietly() (
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"
)

# Adds up the closing lines of all test runs, and ends with their verdict.
summary() {
  local log=$1 status=$2
  awk '
    /^test result: / {
      for (i = 1; i <= NF; i++) {
        if ($i == "passed;") passed += $(i - 1)
        if ($i == "failed;") failed += $(i - 1)
        if ($i == "ignored;") ignored += $(i - 1)
      }
      runs++
    }
    END {
      printf "\n== %d test runs\n%d passed, %d failed, %d skipped\n", runs, passed, failed, ignored
      exit (passed == 0 || failed > 0) ? 1 : 0
    }' "$log" || status=1
  if [ "$status" -ne 0 ]; then
    grep -E '^test .*FAILED$' "$log" | sort -u || true
  fi
  exit "$status"
}
