"""The tables of the store, in the schema that POSTHOUSE_SCHEMA names."""

from django.db.migrations import Migration as DjangoMigration

from posthouse.django.operations import UpgradeStore


class Migration(DjangoMigration):
    operations = (UpgradeStore(),)
