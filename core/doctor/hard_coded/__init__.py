"""The rule `hard-coded-device`: devices that are written into the code. No thread here."""
