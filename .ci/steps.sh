# For .ci/run and .ci/all: steps by name, and a table of what each took at the end, also where one failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0

steps=() now="" since=0

step() {
    finish
    now=$* since=$SECONDS
    printf '\n== %s\n' "$now"
}

finish() {
    [[ -z $now ]] || steps+=("$(printf '%5d s  %s' $((SECONDS - since)) "$now")")
    now=""
}

table() {
    local status=$? last=$now
    finish
    printf '\n== %d s\n' "$SECONDS"
    printf '%s\n' "${steps[@]}"
    ((status == 0)) || printf 'FAILED%s\n' "${last:+ in: $last}"
}
trap table EXIT
