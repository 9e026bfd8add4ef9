#!/usr/bin/env bash
# Builds wheel and sdist of the last commit into dist/ and checks them: the sdist gives the same wheel, which has at most
# 12 MB, and answers in an environment and a folder of its own. A tag must be that of the version: tests/release.sh v1.0.0
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
repository=$PWD
fail() { echo "$*" >&2; exit 1; }

folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
mkdir "$folder"/{source,unpacked,elsewhere}
"${PYTHON:-python3}" -m venv "$folder/build" "$folder/clean"
"$folder/build/bin/python" -m pip --disable-pip-version-check install -qq 'setuptools>=77'
build() { # wheel|sdist FOLDER, from the current folder
    "$folder/build/bin/python" -c "from setuptools import build_meta; build_meta.build_$1('$2')" >"$folder/log" 2>&1 ||
        fail "$(cat "$folder/log")"
}

git archive HEAD | tar -x -C "$folder/source" # the commit alone: setuptools packs what an earlier build left behind
cd "$folder/source"
build wheel "$folder/dist"
build sdist "$folder/dist"
wheel=$(echo "$folder"/dist/*.whl)
[ -z "${1:-}" ] || [[ $wheel == */arith_erd-${1#v}-* ]] || fail "tag $1: expected that of ${wheel##*/}"
[ "$(wc -c < "$wheel")" -le 12000000 ] || fail "${wheel##*/}: $(wc -c < "$wheel") bytes; expected at most 12000000"

tar -xf "$folder"/dist/*.tar.gz --strip-components=1 -C "$folder/unpacked"
cd "$folder/unpacked"
build wheel "$folder/again"
contents() { "$folder/build/bin/python" -c 'import sys, zipfile
for file in zipfile.ZipFile(sys.argv[1]).infolist(): print(file.filename, file.file_size, file.CRC)' "$1" | sort; }
diff <(contents "$wheel") <(contents "$folder"/again/*.whl) || fail "the sdist gives another wheel, as said above"

cd "$folder/elsewhere"
"$folder/clean/bin/python" -m pip --disable-pip-version-check install -qq "$wheel"
"$folder/clean/bin/arith"
ls arith-*.png arith-*.html >/dev/null # what it says that it wrote

mkdir -p "$repository/dist"
cp "$folder"/dist/* "$repository/dist"
