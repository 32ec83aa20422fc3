package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	core "k8s.io/client-go/testing"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"
	metricsfake "k8s.io/metrics/pkg/client/clientset/versioned/fake"
)

// metrics serves metrics.k8s.io.
func (q *Question) metrics() metricsclient.Interface {
	client := metricsfake.NewSimpleClientset()
	client.PrependReactor("get", "*", func(action core.Action) (bool, runtime.Object, error) {
		get := action.(core.GetAction)
		meta := metav1.ObjectMeta{Namespace: get.GetNamespace(), Name: get.GetName()}
		var object runtime.Object
		var found bool
		if get.GetNamespace() == "" {
			var usage v1.ResourceList
			usage, found = q.UsageOfNodes[get.GetName()]
			object = &v1beta1.NodeMetrics{ObjectMeta: meta, Usage: usage}
		} else {
			var usage v1.ResourceList
			usage, found = q.UsageOfPods[get.GetNamespace()+"/"+get.GetName()]
			object = &v1beta1.PodMetrics{ObjectMeta: meta, Containers: []v1beta1.ContainerMetrics{{Name: "c", Usage: usage}}}
		}
		if !found {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: get.GetResource().Resource}, get.GetName())
		}
		return true, object, nil
	})
	return client
}

// vector answers every query of Prometheus with one sample for each node.
type vector map[string]float64

func (vector) URL(path string, args map[string]string) *url.URL {
	return &url.URL{Path: path}
}

func (v vector) Do(context.Context, *http.Request) (*http.Response, []byte, error) {
	type sample struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"`
	}
	samples := []sample{}
	for node, fraction := range v {
		text, err := json.Marshal(fraction)
		if err != nil {
			return nil, nil, err
		}
		samples = append(samples, sample{map[string]string{"instance": node}, [2]any{0, strings.TrimSpace(string(text))}})
	}
	body, err := json.Marshal(map[string]any{
		"status": "success",
		"data":   map[string]any{"resultType": "vector", "result": samples},
	})
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}, body, err
}
