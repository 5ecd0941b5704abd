#!/bin/sh
# Migrate, replace one process after the other, finish the migration. Run it from the folder of the new release.
set -eu
posthouse check app:app
posthouse db upgrade app:app            # the release before runs on meanwhile
for copy in 1 2; do
    systemctl restart "shop@$copy"      # returns when the old one has finished what it had in flight
    curl --fail --silent --output /dev/null --retry 60 --retry-delay 1 --retry-all-errors "http://127.0.0.1:946$copy/readyz"
done
posthouse db upgrade --post app:app     # what only the new release can live with
posthouse db status app:app
