variable "project" {
  description = "The Google Cloud project."
  type        = string
}

variable "labels" {
  description = "Labels of every topic and subscription."
  type        = map(string)
  default     = {}
}

variable "topic_retention" {
  description = "How long a topic keeps messages, by the longest retention class of its events. Pub/Sub keeps them for 31 days at most; the archive keeps them for as long as the class says."
  type        = map(string)
  default = {
    hot  = "604800s"
    warm = "604800s"
    cold = "604800s"
  }

  validation {
    condition     = length(setsubtract(["hot", "warm", "cold"], keys(var.topic_retention))) == 0
    error_message = "Say it for each of hot, warm and cold."
  }
}

variable "subscription_retention" {
  description = "How long a subscription keeps messages, read or not: `retention` in the broker's URL."
  type        = string
  default     = "604800s"
}

variable "lease" {
  description = "The ack deadline in seconds: `lease` in the broker's URL."
  type        = number
  default     = 60

  validation {
    condition     = var.lease >= 10 && var.lease <= 600
    error_message = "An ack deadline lies between 10 and 600 seconds."
  }
}

variable "lost_topic" {
  description = "The dead-letter topic of every subscription: `dead_letters` in the broker's URL."
  type        = string
  default     = "posthouse.lost"
}

variable "minimum_backoff" {
  description = "The first pause of Pub/Sub itself before a message comes again: after a crash, or when a push was refused."
  type        = string
  default     = "10s"
}

variable "maximum_backoff" {
  description = "The longest pause of Pub/Sub itself."
  type        = string
  default     = "600s"
}

variable "exactly_once" {
  description = "Exactly-once delivery by Pub/Sub. The inbox applies each event once without it; it is slower, holds within one region, and is not there for push."
  type        = bool
  default     = false
}

variable "push" {
  description = "Groups that are pushed to, by their names: the https endpoint, the account that tokens are signed for, and the audience, which is the endpoint unless said."
  type = map(object({
    endpoint = string
    account  = string
    audience = optional(string)
  }))
  default = {}
}

variable "forward_lost" {
  description = "Whether Pub/Sub may take a message out of its key's order after 100 deliveries."
  type        = bool
  default     = false
}

variable "archive_bucket" {
  description = "The bucket of the archive; empty: none is made."
  type        = string
  default     = ""
}

variable "archive_location" {
  description = "Where that is kept: a region, as in europe-west1."
  type        = string
  default     = ""
}

variable "archive_days" {
  description = "For how many days the archive keeps events of each class: `archive` of RetentionClasses."
  type        = map(number)
  default = {
    hot  = 30
    warm = 365
    cold = 2555
  }

  validation {
    condition     = length(setsubtract(["hot", "warm", "cold"], keys(var.archive_days))) == 0 && length(setsubtract(keys(var.archive_days), ["hot", "warm", "cold"])) == 0
    error_message = "Say it for each of hot, warm and cold."
  }

  validation {
    condition     = var.archive_days["hot"] <= var.archive_days["warm"] && var.archive_days["warm"] <= var.archive_days["cold"]
    error_message = "A class is kept at least as long as the one before it: hot, warm, cold."
  }
}

variable "archive_grace_days" {
  description = "So many days later the bucket itself deletes what `posthouse archive expire` has not: that comes first, and notes what goes."
  type        = number
  default     = 7
}

variable "archive_prefixes" {
  description = "What the names of the files of each class begin with, behind the folder of the archive where it has one."
  type        = map(string)
  default = {
    hot  = "data/hot/"
    warm = "data/warm/"
    cold = "data/cold/"
  }

  validation {
    condition     = length(setsubtract(["hot", "warm", "cold"], keys(var.archive_prefixes))) == 0
    error_message = "Say it for each of hot, warm and cold."
  }
}
