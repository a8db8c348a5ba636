"""Forms: dialogs with fields, a row of fields above its results, where files are saved and loaded. Main thread only."""
