from posthouse import Payload, Service

analytics = Service("analytics", namespace="shop", owner="team data")


@analytics.event("visit.counted.v1", key="visit_id")
class VisitCounted(Payload):
    visit_id: str
    country: str
