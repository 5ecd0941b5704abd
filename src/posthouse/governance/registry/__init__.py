"""A schema registry over HTTP that speaks Confluent's API: `posthouse registry serve`, or `app.registry_app` on any server."""
