"""Build time: how contracts may change, what is exported, checked and registered. The run time never imports it."""
