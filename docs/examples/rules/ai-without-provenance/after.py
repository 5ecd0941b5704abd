from posthouse import Payload, Service

ai = Service("ai_desk", namespace="shop", owner="team models")


@ai.event("fraud.suspected.v1", key="order_id", retention="cold")
class FraudSuspected(Payload):
    order_id: str
    model: str
    model_version: str
    confidence: float
    source: str
