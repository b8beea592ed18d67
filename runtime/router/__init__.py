"""The mini load balancer: pairs a prefill and a decode instance per request."""
