"""The user's source as the doctor reads it: syntax trees, statements at fault, origins, fixes. No torch but for
`origins`."""
