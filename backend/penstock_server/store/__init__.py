"""The control plane of the sample store: keyspaces and folders, who may read, health, and our own objects."""

from penstock_server.store.gateway import ObjectMissing, StoreGateway, StoreProject

__all__ = ["ObjectMissing", "StoreGateway", "StoreProject"]
