# SPDX-License-Identifier: Apache-2.0
"""The Jobs in the text of KEP-3329's first design, as they are written there.

What the KEP leaves out (batch/v1, a name, restartPolicy Never) is supplied by
the tests that use them; the second form of story 2 is a policy alone, for its Job.
"""

STORY_1 = """
apiVersion: v1
kind: Job
spec:
  template:
    spec:
      containers:
      - name: job-container
        image: job-image
        command: ["./program"]
  backoffLimit: 3
  backoffPolicy:
    rules:
    - containerExitCodeNotIn: 40-50
      action: Terminate
"""

STORY_2 = """
apiVersion: v1
kind: Job
spec:
  template:
    spec:
      containers:
      - name: main-job-container
        image: job-image
        command: ["./program"]
      - name: monitoring-job-container
        image: job-monitoring
        command: ["./monitoring"]
  backoffLimit: 3
  backoffPolicy:
    rules:
    - podStatusReasonIn:
      - Preemption
      - NodePressureEviction
      action: Ignore
"""

STORY_2_ANY = (
    STORY_2.partition("  backoffPolicy:")[0]
    + """  backoffPolicy:
    rules:
    - podStatusReasonNotIn:
      - ''
      action: Ignore
"""
)

DESIGN = """
apiVersion: v1
kind: Job
spec:
  template:
    spec:
      containers:
      - name: main-job-container
        image: job-image
        command: ["./program"]
      - name: monitoring-job-container
        image: job-monitoring
        command: ["./monitoring"]
  backoffLimit: 3
  backoffPolicy:
    rules:
    - containerExitCodeIn: 1-12,100-127
      containerName: main-job-container
      action: Terminate
    - podStatusReasonNotIn:
      - ''
      action: Ignore
"""

ALTERNATIVE_1 = """
    rules:
    - action: Terminate
      onContainerExitCode:
        valueIn: 1-12,100-127
        containerName: main-job-container
    - action: Ignore
      onPodStatus:
        reasonIn:
        - Preemption
        - NodePressureEviction
"""

ALTERNATIVE_2 = """
    rules:
    - action: Terminate
      onContainerExitCode:
        valueExpressions:
        - {operator: NotIn, values: [40-50]}
        containerName: main-job-container
    - action: Ignore
      onPodStatus:
        reasonExpressions:
        - {operator: In, values: [Preemption, NodePressureEviction]}
"""
