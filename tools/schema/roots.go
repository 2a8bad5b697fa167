// SPDX-License-Identifier: Apache-2.0

package main

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// roots are the kinds of api/kinds.py, their lists, and the bodies of
// subresources, reviews, deletions and answers.
var roots = []struct {
	apiVersion string
	object     any
}{
	{"v1", corev1.Binding{}},
	{"v1", corev1.ConfigMap{}},
	{"v1", corev1.ConfigMapList{}},
	{"v1", corev1.Event{}},
	{"v1", corev1.EventList{}},
	{"v1", corev1.Namespace{}},
	{"v1", corev1.NamespaceList{}},
	{"v1", corev1.Node{}},
	{"v1", corev1.NodeList{}},
	{"v1", corev1.PersistentVolume{}},
	{"v1", corev1.PersistentVolumeClaim{}},
	{"v1", corev1.PersistentVolumeClaimList{}},
	{"v1", corev1.PersistentVolumeList{}},
	{"v1", corev1.Pod{}},
	{"v1", corev1.PodList{}},
	{"v1", corev1.Secret{}},
	{"v1", corev1.SecretList{}},
	{"v1", corev1.Service{}},
	{"v1", corev1.ServiceAccount{}},
	{"v1", corev1.ServiceAccountList{}},
	{"v1", corev1.ServiceList{}},
	{"v1", metav1.DeleteOptions{}},
	{"v1", metav1.Status{}},
	{"authentication.k8s.io/v1", authenticationv1.SelfSubjectReview{}},
	{"authorization.k8s.io/v1", authorizationv1.SelfSubjectAccessReview{}},
	{"authorization.k8s.io/v1", authorizationv1.SelfSubjectRulesReview{}},
	{"batch/v1", batchv1.Job{}},
	{"batch/v1", batchv1.JobList{}},
	{"coordination.k8s.io/v1", coordinationv1.Lease{}},
	{"coordination.k8s.io/v1", coordinationv1.LeaseList{}},
	{"events.k8s.io/v1", eventsv1.Event{}},
	{"events.k8s.io/v1", eventsv1.EventList{}},
	{"policy/v1", policyv1.Eviction{}},
	{"policy/v1", policyv1.PodDisruptionBudget{}},
	{"policy/v1", policyv1.PodDisruptionBudgetList{}},
	{"scheduling.k8s.io/v1", schedulingv1.PriorityClass{}},
	{"scheduling.k8s.io/v1", schedulingv1.PriorityClassList{}},
	{"storage.k8s.io/v1", storagev1.VolumeAttachment{}},
	{"storage.k8s.io/v1", storagev1.VolumeAttachmentList{}},
}
