"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

Topics and share groups can be described and changed. A broker's options can be described; they are
changed where they are given, when the node starts.
"""

from dataclasses import fields
from typing import Any

from kio.schema.alter_configs.v2 import request as alter_in
from kio.schema.alter_configs.v2 import response as alter_out
from kio.schema.create_topics.v7 import response as create_out
from kio.schema.describe_configs.v4 import request as describe_in
from kio.schema.describe_configs.v4 import response as describe_out
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1 import request as change_in
from kio.schema.incremental_alter_configs.v1 import response as change_out
from kio.static.primitive import i8

from penstock.broker import SHARE_SETTINGS, Broker, SettingType, SettingValue, Topic
from penstock.errors import InvalidRequest, InvalidSetting, PenstockError
from penstock.protocols.kafka.api import Api, Context, plain_api
from penstock.protocols.kafka.codec import NO_THROTTLE
from penstock.protocols.kafka.errors import error_code

_TOPIC_RESOURCE = 2
_BROKER_RESOURCE = 4
_GROUP_RESOURCE = 32

_TOPIC_SOURCE = 1
_STATIC_BROKER_SOURCE = 4
_DEFAULT_SOURCE = 5
_GROUP_SOURCE = 8

_SET = 0
_DELETE = 1
_APPEND = 2
_SUBTRACT = 3

_TYPES = {
    SettingType.BOOLEAN: 1,
    SettingType.STRING: 2,
    SettingType.INT: 3,
    SettingType.LONG: 5,
    SettingType.DOUBLE: 6,
    SettingType.LIST: 7,
}


def apis() -> list[Api]:
    """Return the three APIs."""
    return [
        plain_api(32, "DescribeConfigs", range(1, 5), _describe_configs),
        plain_api(33, "AlterConfigs", range(3), _alter_configs),
        plain_api(44, "IncrementalAlterConfigs", range(2), _change_configs),
    ]


def creation_configs(broker: Broker, topic: Topic) -> tuple[create_out.CreatableTopicConfigs, ...]:
    """Return a topic's settings as CreateTopics answers them."""
    return tuple(
        create_out.CreatableTopicConfigs(
            name=setting.definition.name,
            value=setting.value,
            read_only=False,
            config_source=i8(_source(setting)),
            is_sensitive=False,
        )
        for setting in broker.topics.settings_of(topic)
    )


async def _describe_configs(
    request: describe_in.DescribeConfigsRequest, context: Context
) -> describe_out.DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        configs: tuple[describe_out.DescribeConfigsResourceResult, ...] = ()
        code, message = ErrorCode.none, None
        try:
            configs = _describe(resource, request, context.broker)
        except PenstockError as error:
            code, message = error_code(error, context.broker), str(error)
        results.append(
            describe_out.DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
    return describe_out.DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _describe(
    resource: describe_in.DescribeConfigsResource,
    request: describe_in.DescribeConfigsRequest,
    broker: Broker,
) -> tuple[describe_out.DescribeConfigsResourceResult, ...]:
    if resource.resource_type == _TOPIC_RESOURCE:
        configs = [
            _topic_config(each, request) for each in broker.topics.settings(resource.resource_name)
        ]
    elif resource.resource_type == _BROKER_RESOURCE:
        _check_broker(resource.resource_name, broker)
        configs = [_broker_config(name, value) for name, value in _broker_options(broker)]
    elif resource.resource_type == _GROUP_RESOURCE:
        given = broker.share.settings(resource.resource_name)
        configs = [_group_config(name, given.get(name)) for name in SHARE_SETTINGS]
    else:
        raise InvalidRequest(
            f"resources of type {resource.resource_type} have no settings here; topics"
            f" ({_TOPIC_RESOURCE}), brokers ({_BROKER_RESOURCE}) and groups ({_GROUP_RESOURCE}) do"
        )
    wanted = resource.configuration_keys
    return tuple(config for config in configs if not wanted or config.name in wanted)


def _topic_config(
    setting: SettingValue, request: describe_in.DescribeConfigsRequest
) -> describe_out.DescribeConfigsResourceResult:
    name = setting.definition.name
    synonyms = []
    if request.include_synonyms:
        if setting.is_given:
            synonyms.append(_synonym(name, setting.value, _TOPIC_SOURCE))
        synonyms.append(_synonym(name, setting.default, _DEFAULT_SOURCE))
    return describe_out.DescribeConfigsResourceResult(
        name=name,
        value=setting.value,
        read_only=False,
        config_source=i8(_source(setting)),
        is_sensitive=False,
        synonyms=tuple(synonyms),
        config_type=i8(_TYPES[setting.definition.type]),
        documentation=setting.definition.meaning if request.include_documentation else None,
    )


def _synonym(name: str, value: str, source: int) -> describe_out.DescribeConfigsSynonym:
    return describe_out.DescribeConfigsSynonym(name=name, value=value, source=i8(source))


def _source(setting: SettingValue) -> int:
    return _TOPIC_SOURCE if setting.is_given else _DEFAULT_SOURCE


def _broker_options(broker: Broker) -> list[tuple[str, str]]:
    return [
        (field.name.replace("_", "."), str(getattr(broker.options, field.name)))
        for field in fields(broker.options)
    ]


def _broker_config(name: str, value: str) -> describe_out.DescribeConfigsResourceResult:
    return describe_out.DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=True,
        config_source=i8(_STATIC_BROKER_SOURCE),
        is_sensitive=False,
        synonyms=(),
        config_type=i8(_TYPES[SettingType.STRING]),
        documentation=None,
    )


def _group_config(name: str, given: str | None) -> describe_out.DescribeConfigsResourceResult:
    setting = SHARE_SETTINGS[name]
    return describe_out.DescribeConfigsResourceResult(
        name=name,
        value=setting.default if given is None else given,
        read_only=False,
        config_source=i8(_DEFAULT_SOURCE if given is None else _GROUP_SOURCE),
        is_sensitive=False,
        synonyms=(),
        config_type=i8(_TYPES[SettingType.STRING if setting.choices else SettingType.INT]),
        documentation=None,
    )


def _check_broker(name: str, broker: Broker) -> None:
    if name not in ("", str(broker.node_id)):
        raise InvalidRequest(f"there is no broker {name!r}; this is broker {broker.node_id}")


async def _alter_configs(
    request: alter_in.AlterConfigsRequest, context: Context
) -> alter_out.AlterConfigsResponse:
    """Replace all settings of each resource."""
    responses = []
    for resource in request.resources:
        given = {
            config.name: config.value for config in resource.configs if config.value is not None
        }
        code, message = await _change(
            resource, context.broker, given, None, dry_run=request.validate_only
        )
        responses.append(
            alter_out.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return alter_out.AlterConfigsResponse(throttle_time=NO_THROTTLE, responses=tuple(responses))


async def _change_configs(
    request: change_in.IncrementalAlterConfigsRequest, context: Context
) -> change_out.IncrementalAlterConfigsResponse:
    """Change single settings of each resource."""
    responses = []
    for resource in request.resources:
        message: str | None
        try:
            changed, removed = _changes(resource, context.broker)
        except PenstockError as error:
            code, message = error_code(error, context.broker), str(error)
        else:
            code, message = await _change(
                resource, context.broker, changed, removed, dry_run=request.validate_only
            )
        responses.append(
            change_out.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return change_out.IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE, responses=tuple(responses)
    )


def _changes(
    resource: change_in.AlterConfigsResource, broker: Broker
) -> tuple[dict[str, str], list[str]]:
    """Return what to set and what to return to its default."""
    changed: dict[str, str] = {}
    removed: list[str] = []
    for config in resource.configs:
        if config.config_operation == _DELETE:
            removed.append(config.name)
        elif config.value is None:
            raise InvalidRequest(f"{config.name} is to be changed but has no value")
        elif config.config_operation == _SET:
            changed[config.name] = config.value
        else:
            changed[config.name] = _changed_list(resource.resource_name, config, broker)
    return changed, removed


def _changed_list(topic: str, config: change_in.AlterableConfig, broker: Broker) -> str:
    """Return a list setting with parts added or taken away."""
    settings = {each.definition.name: each for each in broker.topics.settings(topic)}
    setting = settings.get(config.name)
    if setting is None or setting.definition.type is not SettingType.LIST:
        raise InvalidSetting(f"{config.name} is no list, so nothing can be added or taken away")
    present = [part for part in setting.value.split(",") if part]
    parts = (config.value or "").split(",")
    if config.config_operation == _APPEND:
        return ",".join([*present, *(part for part in parts if part not in present)])
    if config.config_operation == _SUBTRACT:
        return ",".join(part for part in present if part not in parts)
    raise InvalidRequest(
        f"config operation {config.config_operation} is unknown; there are {_SET}, set, {_DELETE},"
        f" delete, {_APPEND}, append, and {_SUBTRACT}, subtract"
    )


async def _change(
    resource: Any,
    broker: Broker,
    changed: dict[str, str],
    removed: list[str] | None,
    *,
    dry_run: bool,
) -> tuple[ErrorCode, str | None]:
    """Change one resource; without `removed`, everything that is not given returns to default."""
    try:
        if resource.resource_type == _GROUP_RESOURCE:
            await _change_group(resource.resource_name, broker, changed, removed, dry_run=dry_run)
            return ErrorCode.none, None
        if resource.resource_type == _BROKER_RESOURCE and not changed:
            # Kafka's tools take their throttles away when a reassignment is done. What was given at
            # the start stays, there as here, and nothing else can have been given.
            _check_broker(resource.resource_name, broker)
            return ErrorCode.none, None
        if resource.resource_type != _TOPIC_RESOURCE:
            raise InvalidRequest(
                f"only topics (type {_TOPIC_RESOURCE}) and groups (type {_GROUP_RESOURCE}) can be"
                f" changed while the node runs, not resources of type {resource.resource_type}"
            )
        if removed is None:
            settings = broker.topics.settings(resource.resource_name)
            removed = [
                each.definition.name
                for each in settings
                if each.is_given and each.definition.name not in changed
            ]
        await broker.topics.change_settings(
            resource.resource_name, changed, removed, dry_run=dry_run
        )
    except PenstockError as error:
        return error_code(error, broker), str(error)
    return ErrorCode.none, None


async def _change_group(
    group_id: str,
    broker: Broker,
    changed: dict[str, str],
    removed: list[str] | None,
    *,
    dry_run: bool,
) -> None:
    if removed is None:
        removed = [name for name in broker.share.settings(group_id) if name not in changed]
    await broker.share.configure(group_id, changed, removed, is_dry_run=dry_run)
