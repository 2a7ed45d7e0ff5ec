"""Which addresses of a network are public: pictures are fetched from no others."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# addresses that carry an IPv4 address, through which a gateway reaches it: NAT64, 6to4, Teredo, compatible
_CARRIERS = [IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")]
_SITE = IPv6Network("fec0::/10")
_SPECIAL = [IPv4Network(text) for text in ("192.0.0.0/24", "192.88.99.0/24")]  # Python 3.11 takes some for public


def is_public(text: str) -> bool:
    """Whether an address is neither private, loopback, link-local, multicast nor reserved. False: no address."""
    try:
        address: IPv4Address | IPv6Address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(str(address.ipv4_mapped))
        if "%" in text or address in _SITE or any(address in network for network in _CARRIERS):
            return False
    elif any(address in network for network in _SPECIAL):
        return False
    refused = (
        address.is_private, address.is_loopback, address.is_link_local, address.is_multicast, address.is_reserved,
        address.is_unspecified,
    )  # fmt: skip
    return address.is_global and not any(refused)
