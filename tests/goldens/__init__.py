"""Files that DevExplorer wrote, which have to open with the same content: `make.py` wrote them, `reading.py` opens
them.

Those here are from before its modules and classes got other names, those in `second` from before features could be
left out."""
