"""The event bus: what happened, told to every open page."""

from penstock_server.events.port import BusEvent, EventBus, open_bus

__all__ = ["BusEvent", "EventBus", "open_bus"]
