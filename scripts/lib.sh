# Shared by the scripts: sourced, not run.

say() { printf '\n== %s\n' "$*"; }

# Runs a command under a heading, says how long it took, and stops at its failure.
step() {
  local name=$1 began=$SECONDS status=0
  shift
  say "$name"
  run "$@" || status=$?
  printf -- '-- %s: %d s\n' "$name" "$((SECONDS - began))"
  [ "$status" -eq 0 ] || exit "$status"
}

# Runs a command in a process group of its own, so that all of it can be stopped.
run() {
  start "$@"
  finish "$!"
}

# Starts one beside what comes next; `$!` is for `finish`.
start() {
  set -m
  "$@" </dev/null &
  set +m
  running+=("$!")
}

# Waits for one that was started; its exit status.
finish() {
  local status=0 pid left=()
  wait "$1" || status=$?
  for pid in "${running[@]}"; do
    [ "$pid" = "$1" ] || left+=("$pid")
  done
  running=(${left[@]+"${left[@]}"})
  return "$status"
}

# A script that is told to end stops what it runs first.
running=()
stop() {
  local pid
  trap '' INT TERM HUP
  for pid in ${running[@]+"${running[@]}"}; do
    kill -TERM -- "-$pid" 2>/dev/null || true
  done
  for pid in ${running[@]+"${running[@]}"}; do
    wait "$pid" 2>/dev/null || true
  done
  exit "$1"
}
trap 'stop 129' HUP
trap 'stop 130' INT
trap 'stop 143' TERM

# A toolchain, and a C compiler for SQLite.
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
}

# The toolchain's parts for formatting and lints.
ensure_lints() {
  local part
  for part in rustfmt clippy; do
    cargo "${part/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$part"
  done
}

# Where cargo puts what it builds, whatever its settings say.
target_folder() {
  cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'
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
