"""The history of benchmark runs: SQLite, import and export, comparison, the HTML report. No torch."""
