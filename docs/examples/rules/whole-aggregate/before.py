from posthouse import Payload, Service

orders = Service("orders", namespace="shop", owner="team checkout")


@orders.event("order.shipped.v1", key="order_id")
class OrderShipped(Payload):
    order_id: str
    street_one: str
    street_two: str
    street_three: str
    street_four: str
    street_five: str
    street_six: str
    street_seven: str
    street_eight: str
    city_one: str
    city_two: str
    city_three: str
    city_four: str
    city_five: str
    city_six: str
    city_seven: str
    city_eight: str
    country_one: str
    country_two: str
    country_three: str
    country_four: str
    country_five: str
    country_six: str
    country_seven: str
    country_eight: str
    note_one: str
    note_two: str
    note_three: str
    note_four: str
    note_five: str
    note_six: str
    note_seven: str
    note_eight: str
