"""What the processes of one machine share: SQLite files, and a doorbell that says something was committed."""
