"""What the processes of one machine share: SQLite files, and a notifier that says something was committed."""
