import boto3

labels = boto3.resource
