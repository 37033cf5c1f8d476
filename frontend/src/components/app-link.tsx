import { Anchor, type AnchorProps, Button, type ButtonProps } from '@mantine/core';
import { createLink } from '@tanstack/react-router';
import type { AnchorHTMLAttributes, Ref } from 'react';

type LinkAttributes = Omit<AnchorHTMLAttributes<HTMLAnchorElement>, keyof AnchorProps> & {
  ref?: Ref<HTMLAnchorElement>;
};

function StyledAnchor(props: AnchorProps & LinkAttributes) {
  return <Anchor {...props} />;
}

function StyledButton(props: ButtonProps & LinkAttributes) {
  return <Button component="a" {...props} />;
}

/** The router's link with the theme's looks. */
export const AppLink = createLink(StyledAnchor);
export const ButtonLink = createLink(StyledButton);
