package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine/drain"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// drainInterval is how long Cluster API's machine controller waits between two looks at a node. It keeps the value to itself.
const drainInterval = 20 * time.Second

// drainAsClusterAPI does by Cluster API's own helper what its machine controller does for a machine that is deleted. That controller itself
// needs a management cluster.
func drainAsClusterAPI(ctx context.Context, config *rest.Config, name string) error {
	remote, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	node := &corev1.Node{}
	if err := remote.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	helper := &drain.Helper{Client: withoutDrainRules{}, RemoteClient: remote, GracePeriodSeconds: -1}
	if err := helper.CordonNode(ctx, node); err != nil {
		return err
	}
	since := metav1.Now()
	for {
		pods, err := helper.GetPodsForEviction(ctx, &clusterv1.Cluster{}, &clusterv1.Machine{}, name)
		if err != nil {
			return err
		}
		if len(pods.Pods()) == 0 {
			return nil
		}
		result := helper.EvictPods(ctx, pods)
		if result.DrainCompleted() {
			return nil
		}
		say("condition of the machine: %s", result.ConditionMessage(since))
		time.Sleep(drainInterval)
	}
}

// withoutDrainRules is a management cluster that has none.
type withoutDrainRules struct{ client.Client }

func (withoutDrainRules) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return nil
}
