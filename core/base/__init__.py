"""What every part of the program may use and that uses none of them: errors, formats, dtypes, whole files, progress. No
torch, no Qt."""
