"""The Penstock server: catalog, API and the ports that workers share with it."""
