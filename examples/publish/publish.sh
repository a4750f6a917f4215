#!/bin/sh
# Announces one change, with nothing but a POSIX shell, openssl and redis-cli (or valkey-cli). See docs/wire.md.
#
#   SENSE_ACTIVATION_FILE=/path/to/activation.json publish.sh REF DATA [SUBJECT [MESSAGE_ID]]
#   publish.sh commit.created '{"commit": "1f33bd0"}' main
#
# DATA is a JSON object. Prints the stream id of the entry. REDIS_CLI names another client program.
set -eu
LC_ALL=C # ${#text} counts bytes
export LC_ALL

fail() {
    printf '%s\n' "publish.sh: $1" >&2
    exit 1
}

[ $# -ge 2 ] || fail 'usage: publish.sh REF DATA [SUBJECT [MESSAGE_ID]]'
file=${SENSE_ACTIVATION_FILE:?is not set (run \`sense-worker activate PACK\` and set it to the file it names)}
[ -r "$file" ] || fail "$file: cannot be read"

field() { # field NAME: a text of the activation file; its texts hold nothing that JSON escapes
    sed -n 's/.*"'"$1"'" *: *"\([^"\\]*\)".*/\1/p' "$file"
}

# --- the body -------------------------------------------------------------------------------------------------------

text() { # text VALUE: as JSON
    case $1 in *[[:cntrl:]]*) fail 'a control character in a text' ;; esac
    printf '"%s"' "$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')"
}

ref=$(text "$1")
subject=${3:+"\"subject\":$(text "$3"),"}
body="{\"ref\":$ref,\"data\":$2,$subject\"occurred_at\":\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\"}"

# --- the signature --------------------------------------------------------------------------------------------------

netstring() { # netstring VALUE
    printf '%s:%s,' "${#1}" "$1"
}

# HMAC by its definition: `openssl dgst -hmac "$secret"` makes the same, but shows the secret in the list of processes.
secret=$(field secret)
[ -n "$secret" ] || fail "$file: no secret"
if [ ${#secret} -gt 64 ]; then
    key=$(printf '%s' "$secret" | openssl dgst -sha256 -binary | od -An -v -tu1)
else
    key=$(printf '%s' "$secret" | od -An -v -tu1)
fi

pad() { # pad BYTE: the key, filled up to 64 bytes with zeros, each of them xor BYTE
    # shellcheck disable=SC2086 # a list of numbers
    set -- "$1" $key
    mask=$1 count=0
    while [ $count -lt 64 ]; do
        shift $(($# > 0))
        printf "\\$(printf %03o $((${1:-0} ^ mask)))"
        count=$((count + 1))
    done
}

hmac() { # standard input: the message
    { pad 54 && cat; } | openssl dgst -sha256 -binary | { pad 92 && cat; } | openssl dgst -sha256 | sed 's/.*= *//'
}

activation=$(field activation_id)
message=${4:-$(openssl rand -hex 16)}
signed_at=$(date +%s)
signature=$(for part in sense1 "$activation" "$message" "$signed_at" "$body"; do netstring "$part"; done | hmac)

# --- the server -----------------------------------------------------------------------------------------------------

url=$(field redis_url)
case $url in
    *%*) fail 'redis_url: this example does not decode %' ;;
    unix://* | redis://* | rediss://*) rest=${url#*://} ;;
    *) fail "$file: no redis_url" ;;
esac
name=''
case $rest in
    *@*)
        name=${rest%%@*}
        rest=${rest#*@}
        export REDISCLI_AUTH="${name#*:}" # not in the list of processes
        name=${name%%:*}
        ;;
esac
case $url in
    unix://*)
        db=${rest##*\?db=}
        case $rest in *\?*) ;; *) db=0 ;; esac
        set -- -s "${rest%%\?*}" -n "$db"
        ;;
    *)
        server=${rest%%/*}
        db=${rest#"$server"}
        port=${server##*:}
        case $server in *:*) ;; *) port=6379 ;; esac
        set -- -h "${server%%:*}" -p "$port" -n "$(printf '%s' "${db:-/0}" | sed 's/^\/$/\/0/; s/^\///')"
        ;;
esac
case $url in rediss://*) set -- "$@" --tls ;; esac
if [ -n "$name" ]; then set -- "$@" --user "$name"; fi

cli=${REDIS_CLI:-$(command -v redis-cli || command -v valkey-cli)} || fail 'redis-cli: not found'
key="sense:$(field tenant):events"

# The stream is bounded by refusal: nobody trims what was not read yet.
# What redis-cli says on standard error counts too: after a refused AUTH it goes on under another account.
length=$("$cli" "$@" XLEN "$key" 2>&1) || fail "$length"
case $length in '' | *[!0-9]*) fail "the server said: $length" ;; esac
[ "$length" -lt 100000 ] || fail "$key: at its bound, try again later"

# -x: the last argument comes from standard input. One on the command line may have 128 KiB at most.
id=$(printf '%s' "$body" |
    "$cli" "$@" -x XADD "$key" '*' v 1 c "$activation" i "$message" t "$signed_at" s "$signature" b)
case $id in
    [0-9]*-[0-9]*) printf '%s\n' "$id" ;;
    *) fail "the server said: $id" ;;
esac
