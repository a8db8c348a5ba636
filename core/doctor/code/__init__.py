"""The user's source as the doctor reads it: statements at fault, origins, fixes. No torch but for `origins`."""
