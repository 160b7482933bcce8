"""Looks at JSON requests by the models that botocore has of AWS's services, without a network.

    check_request.py SERVICE OPERATION < request.json
"""

from __future__ import annotations

import json
import sys

import botocore.session
from botocore.validate import ParamValidator


def main() -> None:
    service, operation = sys.argv[1:]
    model = botocore.session.get_session().get_service_model(service).operation_model(operation)
    report = ParamValidator().validate(json.load(sys.stdin), model.input_shape)
    print(report.generate_report())
    sys.exit(report.has_errors())


if __name__ == "__main__":
    main()
