# expect: ready
mkdir -p "$HOME/bad"
printf '#!/bin/sh\necho "module load python first"\nexit 1\n' > "$HOME/bad/python3"
chmod 755 "$HOME/bad/python3"
PATH=$HOME/bad:$PATH
