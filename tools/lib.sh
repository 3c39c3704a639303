# shellcheck shell=bash
# What the scripts in this folder share: where they write, how they speak, how they fail, how they install.

tools=$(realpath -m "${FRESHET_TOOLS:-.freshet}")
logs=$tools/log

say() { printf '%s: %s\n' "${0##*/}" "$*"; }

# One sentence that says what is wrong and what to do.
fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

make_folder() {
    mkdir -p "$1" 2>/dev/null || fail "Cannot write to $1: make it writable, or name another folder with FRESHET_TOOLS."
}

# logged STEP COMMAND...: run a command with its output in a log; a failure becomes one sentence.
logged() {
    local log=$logs/$1.log
    shift
    make_folder "$logs"
    "$@" >"$log" 2>&1 </dev/null || fail "$(explain "$log" "$*")"
}

# explain LOG COMMAND: the sentence for a command that failed.
explain() {
    local log=$1 command=$2
    if grep -qiE 'no space left on device|not enough free space|disk quota exceeded' "$log"; then
        echo "The disk is full: free some space, then run the same command again (log: $log)."
    elif grep -qiE 'certificate verify failed|invalid peer certificate|UnknownIssuer|PKIX path' "$log"; then
        echo "A server's certificate was refused: behind a proxy, name its certificates with SSL_CERT_FILE," \
            "then run the same command again (log: $log)."
    elif grep -qiE "$unreachable" "$log"; then
        echo "The network cannot be reached: check the connection or the proxy settings," \
            "then run the same command again (log: $log)."
    else
        echo "'$command' failed: $(grep -v '^ *$' "$log" | tail -n 1) (log: $log)."
    fi
}

# How pip, uv, apt and Ivy say that a server cannot be reached.
unreachable='name resolution|could not resolve|failure resolving|dns error|failed to lookup address'
unreachable+='|failed to establish a new connection|connection refused|connection reset|error sending request'
unreachable+='|from versions: none|network is unreachable|no network interfaces|timed out|unknownhostexception'
unreachable+='|unresolved dependency|failed to fetch'

may_install() {
    command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

# apt ARGUMENT...: apt-get as root, without questions; ask may_install first.
apt() {
    local root=(env DEBIAN_FRONTEND=noninteractive)
    [ "$(id -u)" = 0 ] || root=(sudo -n "${root[@]}")
    # Another apt may be at work: wait for its lock.
    "${root[@]}" apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

apt_update() { logged apt-update apt update; }
apt_install() { logged apt-install apt install -y --no-install-recommends "$@"; }
