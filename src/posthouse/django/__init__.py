"""A Django application: the store's tables come with `manage.py migrate`, also into the databases of tests, and `manage.py posthouse`
is the command line with Django set up. Put `posthouse.django` into INSTALLED_APPS."""
