# expect: ready
CDPATH=/:.
cd usr
