import boto3

from posthouse import Service

orders = Service("orders", namespace="shop", owner="team checkout")
labels = boto3.resource
