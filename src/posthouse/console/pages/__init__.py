"""Pages: what each of them shows, as data. A module holds `PAGES`: the functions by the path under /api that they answer."""
