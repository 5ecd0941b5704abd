"""Orders and parcels."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = (
        migrations.CreateModel("Order", [("order_id", models.TextField(primary_key=True, serialize=False))]),
        migrations.CreateModel(
            "Parcel",
            [
                ("number", models.BigAutoField(primary_key=True, serialize=False)),
                ("order_id", models.TextField()),
            ],
        ),
    )
