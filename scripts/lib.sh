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
