import { SegmentedControl, Text, Title, useMantineColorScheme } from '@mantine/core';
import { Panel } from '@/components/panel';

const SCHEMES = [
  { value: 'light', label: 'Light' },
  { value: 'dark', label: 'Dark' },
  { value: 'auto', label: 'As the system' },
];

export function ThemePanel() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return (
    <Panel labelledBy="theme">
      <Title order={2} id="theme" mb="xs">
        Theme
      </Title>
      <SegmentedControl
        aria-labelledby="theme"
        data={SCHEMES}
        value={colorScheme}
        onChange={(value) => {
          if (value === 'light' || value === 'dark' || value === 'auto') setColorScheme(value);
        }}
      />
      <Text size="xs" c="dimmed" mt="xs">
        Kept in this browser.
      </Text>
    </Panel>
  );
}
