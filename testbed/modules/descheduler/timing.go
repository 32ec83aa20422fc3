package main

import (
	"context"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/kubernetes"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
)

// Timing is how long one run took, in seconds.
type Timing struct {
	// Planning is the time in the plugins, without the calls that evict.
	Planning float64 `json:"planning"`
	// Evicting is the time in the calls that evict.
	Evicting float64 `json:"evicting"`
}

// timedClient measures the time that evictions take in the client.
type timedClient struct {
	kubernetes.Interface
	evicting time.Duration
}

func (c *timedClient) PolicyV1() policyclient.PolicyV1Interface {
	return timedPolicy{c.Interface.PolicyV1(), c}
}

type timedPolicy struct {
	policyclient.PolicyV1Interface
	client *timedClient
}

func (p timedPolicy) Evictions(namespace string) policyclient.EvictionInterface {
	return timedEvictions{p.PolicyV1Interface.Evictions(namespace), p.client}
}

type timedEvictions struct {
	policyclient.EvictionInterface
	client *timedClient
}

func (e timedEvictions) Evict(ctx context.Context, eviction *policyv1.Eviction) error {
	start := time.Now()
	defer func() { e.client.evicting += time.Since(start) }()
	return e.EvictionInterface.Evict(ctx, eviction)
}
