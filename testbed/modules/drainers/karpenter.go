package main

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/node/termination/terminator"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// drainAsKarpenter runs Karpenter's eviction queue, and asks its terminator every second as the termination controller does. That controller
// itself needs a cloud.
func drainAsKarpenter(ctx context.Context, config *rest.Config, name string) error {
	ctx, cancel := context.WithCancel(options.ToContext(ctx, &options.Options{CPURequests: 1000}))
	defer cancel()
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	nodeOf := func(pod client.Object) []string { return []string{pod.(*corev1.Pod).Spec.NodeName} }
	if err := manager.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, "spec.nodeName", nodeOf); err != nil {
		return err
	}
	recorder := events.NewRecorder(manager.GetEventRecorderFor("karpenter"))
	queue := terminator.NewQueue(manager.GetClient(), recorder)
	if err := queue.Register(ctx, manager); err != nil {
		return err
	}
	drainer := terminator.NewTerminator(clock.RealClock{}, manager.GetClient(), queue, recorder)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	if !manager.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the caches are never filled")
	}
	node := &corev1.Node{}
	if err := manager.GetClient().Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	if err := drainer.Taint(ctx, node, v1.DisruptedNoScheduleTaint); err != nil {
		return err
	}
	for {
		err := drainer.Drain(ctx, node, nil)
		if err == nil || !terminator.IsNodeDrainError(err) {
			return err
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(time.Second):
		}
	}
}
