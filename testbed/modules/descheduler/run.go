package main

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"time"

	promapi "github.com/prometheus/client_golang/api"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"sigs.k8s.io/descheduler/pkg/api"
	"sigs.k8s.io/descheduler/pkg/descheduler"
	"sigs.k8s.io/descheduler/pkg/descheduler/evictions"
	"sigs.k8s.io/descheduler/pkg/descheduler/metricscollector"
	nodeutil "sigs.k8s.io/descheduler/pkg/descheduler/node"
	podutil "sigs.k8s.io/descheduler/pkg/descheduler/pod"
	"sigs.k8s.io/descheduler/pkg/features"
	"sigs.k8s.io/descheduler/pkg/framework/pluginregistry"
	"sigs.k8s.io/descheduler/pkg/framework/profile"
	frameworktypes "sigs.k8s.io/descheduler/pkg/framework/types"
)

// run is one cycle: what the descheduler does between its caches and its evictions, with caches that are filled by hand.
func (q *Question) run(policyFile string, seed int64) ([]string, Timing, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewSimpleClientset()
	for _, class := range q.PriorityClasses {
		if err := client.Tracker().Add(class); err != nil {
			return nil, Timing{}, err
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	evicted := []string{}
	client.PrependReactor("create", "pods", func(action core.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		eviction := action.(core.CreateActionImpl).Object.(*policyv1.Eviction)
		key := eviction.Namespace + "/" + eviction.Name
		pod, found, err := pods.GetIndexer().GetByKey(key)
		if err != nil || !found {
			return true, nil, fmt.Errorf("there is no pod %s", key)
		}
		reason := strings.TrimPrefix(eviction.Annotations["reason"], "triggered by ")
		plugin := strings.SplitN(strings.SplitN(reason, ":", 2)[0], "/", 2)[1]
		evicted = append(evicted, plugin+" "+key)
		return true, nil, pods.GetIndexer().Delete(pod)
	})

	policy, err := descheduler.LoadPolicyConfig(policyFile, client, pluginregistry.PluginRegistry)
	if err != nil {
		return nil, Timing{}, err
	}
	podsOfNode, err := q.podsOfNode(pods, seed)
	if err != nil {
		return nil, Timing{}, err
	}
	timed := &timedClient{Interface: client}
	evictor, err := evictions.NewPodEvictor(ctx, timed, &events.FakeRecorder{}, pods, features.DefaultMutableFeatureGate,
		evictions.NewOptions().
			WithPolicyGroupVersion("policy/v1").
			WithMaxPodsToEvictPerNode(policy.MaxNoOfPodsToEvictPerNode).
			WithMaxPodsToEvictPerNamespace(policy.MaxNoOfPodsToEvictPerNamespace).
			WithMaxPodsToEvictTotal(policy.MaxNoOfPodsToEvictTotal).
			WithGracePeriodSeconds(policy.GracePeriodSeconds).
			WithDryRun(true))
	if err != nil {
		return nil, Timing{}, err
	}
	selector := labels.Everything()
	if policy.NodeSelector != nil {
		if selector, err = labels.Parse(*policy.NodeSelector); err != nil {
			return nil, Timing{}, err
		}
	}
	collector := metricscollector.NewMetricsCollector(factory.Core().V1().Nodes().Lister(), q.metrics(), selector)
	type points interface {
		RunDeschedulePlugins(context.Context, []*v1.Node) *frameworktypes.Status
		RunBalancePlugins(context.Context, []*v1.Node) *frameworktypes.Status
	}
	var profiles []points
	for index, one := range policy.Profiles {
		made, err := profile.NewProfile(ctx, one, pluginregistry.PluginRegistry,
			profile.WithClientSet(client),
			profile.WithSharedInformerFactory(factory),
			profile.WithPodEvictor(evictor),
			profile.WithGetPodsAssignedToNodeFnc(podsOfNode),
			profile.WithMetricsCollector(collector),
			profile.WithPrometheusClient(q.prometheus(policy)),
			profile.WithProfileInstanceID(fmt.Sprint(index)))
		if err != nil {
			return nil, Timing{}, err
		}
		profiles = append(profiles, made)
	}
	// Plugins have added their indexes, which caches take only while they are empty.
	if err := q.fill(factory); err != nil {
		return nil, Timing{}, err
	}
	if err := collector.Collect(ctx); err != nil {
		return nil, Timing{}, err
	}
	nodes := q.readyNodes(selector, seed)
	start := time.Now()
	if len(nodes) < 2 {
		return evicted, Timing{}, nil
	}
	for _, one := range profiles {
		one.RunDeschedulePlugins(ctx, nodes)
	}
	for _, one := range profiles {
		one.RunBalancePlugins(ctx, nodes)
	}
	evicting := timed.evicting
	return evicted, Timing{(time.Since(start) - evicting).Seconds(), evicting.Seconds()}, nil
}

func (q *Question) fill(factory informers.SharedInformerFactory) error {
	fills := []error{
		fill(factory.Core().V1().Nodes().Informer(), q.Nodes),
		fill(factory.Core().V1().Pods().Informer(), q.Pods),
		fill(factory.Core().V1().Namespaces().Informer(), q.Namespaces),
		fill(factory.Core().V1().PersistentVolumeClaims().Informer(), q.Claims),
		fill(factory.Policy().V1().PodDisruptionBudgets().Informer(), q.Budgets),
	}
	for _, err := range fills {
		if err != nil {
			return err
		}
	}
	return nil
}

func fill[T any](informer cache.SharedIndexInformer, objects []T) error {
	for _, object := range objects {
		if err := informer.GetIndexer().Add(object); err != nil {
			return err
		}
	}
	return nil
}

// readyNodes are in the order of their names at first, then in any.
func (q *Question) readyNodes(selector labels.Selector, seed int64) []*v1.Node {
	var nodes []*v1.Node
	for _, node := range q.Nodes {
		if nodeutil.IsReady(node) && selector.Matches(labels.Set(node.Labels)) {
			nodes = append(nodes, node)
		}
	}
	slices.SortFunc(nodes, func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) })
	shuffle(nodes, seed)
	return nodes
}

// podsOfNode gives pods in the order of their names at first, then in any.
func (q *Question) podsOfNode(informer cache.SharedIndexInformer, seed int64) (podutil.GetPodsAssignedToNodeFunc, error) {
	if q.OwnIndexes {
		return podutil.BuildGetPodsAssignedToNodeFunc(informer)
	}
	key := func(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }
	all := slices.Clone(q.Pods)
	slices.SortFunc(all, func(a, b *v1.Pod) int { return strings.Compare(key(a), key(b)) })
	shuffle(all, seed)
	byNode := map[string][]*v1.Pod{}
	for _, pod := range all {
		byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], pod)
	}
	return func(node string, filter podutil.FilterFunc) ([]*v1.Pod, error) {
		pods := []*v1.Pod{}
		for _, pod := range byNode[node] {
			_, found, err := informer.GetIndexer().GetByKey(key(pod))
			if err != nil {
				return nil, err
			}
			if found && (filter == nil || filter(pod)) {
				pods = append(pods, pod)
			}
		}
		return pods, nil
	}, nil
}

func shuffle[T any](all []T, seed int64) {
	if seed > 0 {
		rand.New(rand.NewSource(seed)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
}

func (q *Question) prometheus(policy *api.DeschedulerPolicy) func() promapi.Client {
	for _, provider := range policy.MetricsProviders {
		if provider.Source == api.PrometheusMetrics {
			return func() promapi.Client { return vector(q.Fractions) }
		}
	}
	return nil
}
