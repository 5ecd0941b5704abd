"""The platform alive: guests with plans of their own, vendors with bad days, processes that are killed, and somebody who
counts afterwards whether everything added up."""
