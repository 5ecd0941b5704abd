"""Settings of the project."""

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "only for development")
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "project.urls"
USE_TZ = True
INSTALLED_APPS = [
    "shop",
    "posthouse.django",
]
MIDDLEWARE = [
    "posthouse.django.middleware.CorrelationMiddleware",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "shop"),
        "USER": os.environ.get("PGUSER", "shop"),
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "HOST": os.environ.get("PGHOST", "localhost"),
        "PORT": os.environ.get("PGPORT", "5432"),
    }
}
