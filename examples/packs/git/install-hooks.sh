#!/bin/sh
# Installs the hooks of the git pack into a repository, or takes them out again.
#
#   install-hooks.sh REPOSITORY ACTIVATION_FILE     PYTHON=/path/to/python names the one that has sense-worker
#   install-hooks.sh --remove REPOSITORY
#
# A hook that is not of this pack is never touched; then nothing is changed, and the message says what to do.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
mark='# sense-worker git pack:'

fail() {
    printf '%s\n' "install-hooks.sh: $1" >&2
    exit 1
}

is_ours() { # is_ours FILE
    [ -f "$1" ] && sed -n 2p "$1" | grep -qF "$mark"
}

calls_ours() { # calls_ours FILE NAME
    [ -f "$1" ] && grep -qF "$here/hooks/$2" "$1"
}

absolute() { # absolute FILE
    printf '%s/%s' "$(CDPATH='' cd -- "$(dirname -- "$1")" && pwd)" "$(basename -- "$1")"
}

if [ "${1-}" = --remove ] && [ $# -eq 2 ]; then
    remove=yes repository=$2
elif [ $# -eq 2 ]; then
    remove='' repository=$1
else
    fail 'usage: install-hooks.sh REPOSITORY ACTIVATION_FILE, or install-hooks.sh --remove REPOSITORY'
fi

top=$(CDPATH='' cd -- "$repository" 2>/dev/null && pwd) || fail "$repository: is no folder"
hooks=$(cd -- "$top" && git rev-parse --git-path hooks 2>/dev/null) || fail "$repository: is no git repository"
case $hooks in /*) ;; *) hooks=$top/$hooks ;; esac

if [ -n "$remove" ]; then
    for name in post-commit post-checkout; do
        if is_ours "$hooks/$name"; then rm -f -- "$hooks/$name"; fi
    done
    git -C "$top" config --local --remove-section sense 2>/dev/null || :
    exit 0
fi

[ -r "$2" ] || fail "$2: cannot be read (run \`sense-worker activate git\` and give the file it names)"
activation=$(absolute "$2")
python=$(command -v -- "${PYTHON:-python3}") || fail "${PYTHON:-python3}: not found (set PYTHON to a python that has sense-worker)"
case $python in /*) ;; *) python=$(absolute "$python") ;; esac
SENSE_ACTIVATION_FILE=$activation "$python" -I "$here/announce.py" --check ||
    fail "$python with $activation cannot announce, nothing was changed (set PYTHON to a python that has sense-worker)"

missing=''
for name in post-commit post-checkout; do
    hook=$hooks/$name
    way_out="add the line \"$here/hooks/$name\" \"\$@\" to it and run this again"
    if calls_ours "$hook" "$name"; then
        continue
    elif git -C "$top" config --get core.hooksPath >/dev/null; then
        fail "$hook: core.hooksPath names this folder, which other repositories may share, nothing was changed ($way_out)"
    elif { [ -e "$hook" ] || [ -L "$hook" ]; } && ! is_ours "$hook"; then
        fail "$hook: is there already and not of this pack, nothing was changed ($way_out)"
    fi
    missing="$missing $name"
done

git -C "$top" config --local sense.python "$python"
git -C "$top" config --local sense.announce "$here/announce.py"
git -C "$top" config --local sense.activation "$activation"
for name in $missing; do
    mkdir -p -- "$hooks"
    cp -- "$here/hooks/$name" "$hooks/.$name.sense"
    chmod 755 "$hooks/.$name.sense"
    mv -f -- "$hooks/.$name.sense" "$hooks/$name"
done
printf '%s\n' "commits and checkouts in $top are announced under $activation"
