# Pub/Sub as Posthouse's adapter makes it: the names and settings are those of `posthouse topology`.
# Made from the catalogue, as are variables.tf and catalogue.tf: changes belong in the code of the services.

terraform {
  required_version = ">= 1.5"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0"
    }
  }
}

# Topics and their dead letters.

resource "google_pubsub_topic" "topic" {
  for_each = local.topics

  project                    = var.project
  name                       = each.key
  labels                     = merge(var.labels, each.value.labels)
  message_retention_duration = var.topic_retention[each.value.retention]

  dynamic "message_storage_policy" {
    for_each = length(each.value.residency) > 0 ? [local.persistence[each.key]] : []

    content {
      allowed_persistence_regions = message_storage_policy.value
    }
  }

  lifecycle {
    prevent_destroy = true

    precondition {
      condition     = length(each.value.residency) == 0 || length(local.persistence[each.key]) > 0
      error_message = "The events of this topic must stay in different places, and no region is in all of them: give them topics of their own."
    }
  }
}

# Pub/Sub says how often it has delivered a message only where a subscription has a dead-letter topic. Nothing is meant to get
# here: Posthouse retries and keeps dead events itself. So do not lower max_delivery_attempts to the attempts of a policy: it
# counts crashes and refused pushes too, and what is moved here is missing in the order of its key.

resource "google_pubsub_topic" "lost" {
  project = var.project
  name    = var.lost_topic
  labels  = var.labels
}

resource "google_pubsub_subscription" "lost" {
  project              = var.project
  name                 = var.lost_topic
  topic                = google_pubsub_topic.lost.id
  labels               = var.labels
  ack_deadline_seconds = 60

  expiration_policy {
    ttl = ""
  }
}

# A group's place in a topic.

resource "google_pubsub_subscription" "subscription" {
  for_each = local.subscriptions

  project = var.project
  name    = each.key
  # A topic of a service that is not in this catalogue is known by its name alone.
  topic                        = contains(keys(local.topics), each.value.topic) ? google_pubsub_topic.topic[each.value.topic].id : "projects/${var.project}/topics/${each.value.topic}"
  labels                       = var.labels
  enable_message_ordering      = true
  enable_exactly_once_delivery = var.exactly_once && !contains(keys(var.push), each.value.group)
  ack_deadline_seconds         = var.lease
  retain_acked_messages        = true
  message_retention_duration   = var.subscription_retention

  expiration_policy {
    ttl = ""
  }

  retry_policy {
    minimum_backoff = var.minimum_backoff
    maximum_backoff = var.maximum_backoff
  }

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.lost.id
    max_delivery_attempts = 100
  }

  dynamic "push_config" {
    for_each = contains(keys(var.push), each.value.group) ? [var.push[each.value.group]] : []

    content {
      push_endpoint = push_config.value.endpoint

      oidc_token {
        service_account_email = push_config.value.account
        audience              = coalesce(push_config.value.audience, push_config.value.endpoint)
      }
    }
  }

  lifecycle {
    prevent_destroy = true
  }
}

# Pub/Sub knows Avro and protobuf, not JSON Schema. The schemas are published here and not tied to topics: messages are
# CloudEvents, and a topic with a schema would refuse them.

resource "google_pubsub_schema" "schema" {
  for_each = local.schemas

  project    = var.project
  name       = each.key
  type       = each.value.type
  definition = each.value.definition
}

# One service account for each service: it writes to its own topics and to the dead letters of what it reads, reads its own
# subscriptions, and may look at all of these before it starts.

resource "google_service_account" "service" {
  for_each = local.services

  project      = var.project
  account_id   = each.value
  display_name = "Events of ${each.key}"
}

resource "google_pubsub_topic_iam_member" "publisher" {
  for_each = local.publishers

  project = var.project
  topic   = contains(keys(local.topics), each.value.topic) ? google_pubsub_topic.topic[each.value.topic].name : each.value.topic
  role    = "roles/pubsub.publisher"
  member  = google_service_account.service[each.value.service].member
}

resource "google_pubsub_subscription_iam_member" "subscriber" {
  for_each = local.subscriptions

  project      = var.project
  subscription = google_pubsub_subscription.subscription[each.key].name
  role         = "roles/pubsub.subscriber"
  member       = google_service_account.service[each.value.service].member
}

resource "google_pubsub_topic_iam_member" "viewer" {
  for_each = local.viewers

  project = var.project
  topic   = contains(keys(local.topics), each.value.topic) ? google_pubsub_topic.topic[each.value.topic].name : each.value.topic
  role    = "roles/pubsub.viewer"
  member  = google_service_account.service[each.value.service].member
}

resource "google_pubsub_subscription_iam_member" "viewer" {
  for_each = local.subscriptions

  project      = var.project
  subscription = google_pubsub_subscription.subscription[each.key].name
  role         = "roles/pubsub.viewer"
  member       = google_service_account.service[each.value.service].member
}

# Without these grants Pub/Sub counts deliveries and never gives up, which keeps every key in order.

data "google_project" "this" {
  count = var.forward_lost ? 1 : 0

  project_id = var.project
}

locals {
  agent = var.forward_lost ? "serviceAccount:service-${data.google_project.this[0].number}@gcp-sa-pubsub.iam.gserviceaccount.com" : ""
}

resource "google_pubsub_topic_iam_member" "forwarder" {
  count = var.forward_lost ? 1 : 0

  project = var.project
  topic   = google_pubsub_topic.lost.name
  role    = "roles/pubsub.publisher"
  member  = local.agent
}

resource "google_pubsub_subscription_iam_member" "forwarder" {
  for_each = { for name, one in local.subscriptions : name => one if var.forward_lost }

  project      = var.project
  subscription = google_pubsub_subscription.subscription[each.key].name
  role         = "roles/pubsub.subscriber"
  member       = local.agent
}

# The bucket of the archive, where one is named. `posthouse archive expire` lets go of what a class keeps no longer; what it has left is
# deleted by the bucket itself, and what is to stay for years goes where that is cheap.

resource "google_storage_bucket" "archive" {
  count = var.archive_bucket == "" ? 0 : 1

  project                     = var.project
  name                        = var.archive_bucket
  location                    = var.archive_location
  labels                      = var.labels
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  dynamic "lifecycle_rule" {
    for_each = var.archive_days

    content {
      condition {
        age            = lifecycle_rule.value + var.archive_grace_days
        matches_prefix = [var.archive_prefixes[lifecycle_rule.key]]
      }
      action {
        type = "Delete"
      }
    }
  }

  lifecycle_rule {
    condition {
      age            = var.archive_days["warm"]
      matches_prefix = [var.archive_prefixes["cold"]]
    }
    action {
      type          = "SetStorageClass"
      storage_class = "COLDLINE"
    }
  }

  lifecycle {
    prevent_destroy = true

    precondition {
      condition     = var.archive_location != ""
      error_message = "Say where the archive is kept: archive_location."
    }
  }
}

output "service_accounts" {
  description = "The address of each service's account."
  value       = { for name, account in google_service_account.service : name => account.email }
}
