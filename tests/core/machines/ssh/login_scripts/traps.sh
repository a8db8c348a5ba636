# expect: ready
trap '' INT TERM HUP PIPE CHLD QUIT
trap 'echo goodbye' EXIT
set -eu
