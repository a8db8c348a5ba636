"""Files that DevExplorer wrote before its modules and classes got other names: `make.py` wrote them, `reading.py` opens
them."""
